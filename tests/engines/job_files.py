"""The command lines whose job files the tests look at, and how they are run."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SKY = [
    ("cifar10-tiny", "--hosts", "2", "--type", "T4:2", "--spot", "--storage", "s3://some-bucket"),
    ("cifar10-tiny", "--type", "g4dn.2xlarge", "--region", "aws/us-east-1", "--storage", "volume"),
    ("--type", "A100:8", "--image", "example/paceline:1", "--", "train.py", "--lr", "0.1"),
]
DSTACK = [
    ("cifar10-tiny", "--hosts", "2", "--type", "A100:2", "--spot", "--storage", "volume"),
    ("cifar10-tiny", "--type", "g4dn.2xlarge", "--hours", "2", "--storage", "/nfs/runs"),
    ("--type", "T4:1", "--image", "example/paceline:1", "--", "train.py", "--lr", "0.1"),
]
_POD = ("--image", "example/paceline:1")
KUBERNETES = [
    ("cifar10-tiny", "--hosts", "2", *_POD, "--type", "T4:1", "--spot", "--storage", "runs"),
    ("cifar10-tiny", *_POD, "--hours", "3", "--setup", "paceline data cifar10 --from stand-in"),
    (*_POD, "--", "train.py", "--lr", "0.1"),
]
VERTEX = [
    (
        *("cifar10-tiny", "--hosts", "3", *_POD, "--type", "n1-standard-8+NVIDIA_TESLA_T4:1"),
        *("--spot", "--hours", "4", "--storage", "gs://some-bucket", "--region", "us-central1"),
    ),
    ("cifar10-tiny", *_POD, "--type", "n1-standard-8", "--storage", "nfs://10.0.0.9/runs"),
    (
        *("--hosts", "2", "--parameter-servers", "1", *_POD, "--type", "n1-standard-4"),
        *("--", "train.py", "--lr", "0.1"),
    ),
]
FLEET = """
user: ubuntu
key: ~/.ssh/id_ed25519
hosts:
  - {name: a, address: 10.0.0.1}
  - {name: b, address: 10.0.0.2, port: 2222}
"""
OLD_CONFIG = """
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-highcpu-16
  masterConfig:
    acceleratorConfig: {count: '2', type: NVIDIA_TESLA_T4}
  workerType: n1-highcpu-16
  workerCount: 3
  parameterServerType: large_model
  parameterServerCount: '2'
  runtimeVersion: '1.15'
  pythonVersion: '3.7'
  packageUris: ['gs://some-bucket/trainer-0.1.tar.gz']
  pythonModule: trainer.task
  args: ['--steps', '1000']
  region: europe-west4
  scheduling: {maxRunningTime: 7200s}
"""


def launch(*words: str) -> str:
    """What `paceline launch` prints, in a directory that has a script."""
    source = Path(__file__).parents[2] / "src"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").touch()
        done = subprocess.run(
            [sys.executable, "-m", "paceline.cli", "launch", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(source)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout
