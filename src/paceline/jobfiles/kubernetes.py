"""Files for Kubernetes with Kubeflow Trainer 2: a TrainingRuntime of its own, and the TrainJob.

The runtime belongs to the file because the one that comes with the cluster restarts single pods,
while processes that have lost one of them must all begin again.
"""

import re
from typing import Any

from paceline.errors import UserError
from paceline.jobfiles.document import to_yaml
from paceline.jobfiles.request import (
    IMAGE_GROUP,
    MISTAKE,
    MOUNT,
    RESTARTS,
    SAVE_SECONDS,
    Request,
    check_request,
    require,
)
from paceline.units import count_of

_API = "trainer.kubeflow.org/v1alpha1"
_SPOT_TAINTS = ("cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority", "spot")


def write_kubernetes(request: Request) -> str:
    check_request(request)
    _refuse_no_claim(request.storage)
    image = require(request.image, "--image", "Kubernetes starts containers (docs/containers.md)")
    heading = [
        f"Kubernetes with Kubeflow Trainer 2: {count_of(request.num_hosts, 'pod')}",
        "hand in:    kubectl apply -f FILE",
        f"watch:      kubectl logs -f -l jobset.sigs.k8s.io/jobset-name={request.name}",
        "give back:  kubectl delete -f FILE",
    ]
    return to_yaml(heading, _runtime(request, image), _train_job(request, image))


def _refuse_no_claim(storage: str | None) -> None:
    if storage is not None and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", storage):
        raise UserError(
            f"{storage} is not the name of a persistent volume claim",
            "one that many pods may write (`kubectl get pvc` lists them, with RWX)",
        )


def _runtime(request: Request, image: str) -> dict[str, Any]:
    job = {
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [_mistake_rule()]},
        "template": {"spec": _pod(request, image)},
    }
    label = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    return {
        "apiVersion": _API,
        "kind": "TrainingRuntime",
        "metadata": {"name": request.name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": request.num_hosts, "torch": {}},
            "template": {
                "spec": {
                    "failurePolicy": {"maxRestarts": RESTARTS, "rules": [_give_up_rule()]},
                    "replicatedJobs": [
                        {"name": "node", "template": {"metadata": {"labels": label}, "spec": job}}
                    ],
                }
            },
        },
    }


def _mistake_rule() -> dict[str, Any]:
    codes = {"containerName": "node", "operator": "In", "values": [MISTAKE]}
    return {"action": "FailJob", "onExitCodes": codes}


def _give_up_rule() -> dict[str, Any]:
    """A mistake in the recipe is the same after a restart."""
    return {
        "name": "mistake",
        "action": "FailJobSet",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }


def _pod(request: Request, image: str) -> dict[str, Any]:
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108  (a mount in a pod)
    volumes: list[dict[str, Any]] = [
        # A container's own /dev/shm has 64 MB; data loading and NCCL need more.
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    ]
    if request.storage:
        mounts.append({"name": "runs", "mountPath": MOUNT})
        volumes.append({"name": "runs", "persistentVolumeClaim": {"claimName": request.storage}})
    return {
        "restartPolicy": "Never",
        # So that the image's user, who is not root, may write to a claim.
        "securityContext": {"fsGroup": IMAGE_GROUP},
        "terminationGracePeriodSeconds": SAVE_SECONDS,
        "tolerations": [_toleration(key) for key in _SPOT_TAINTS] if request.spot else None,
        "nodeSelector": {"node.kubernetes.io/instance-type": request.machine.type}
        if request.machine.type
        else None,
        "containers": [
            {
                "name": "node",
                "image": image,
                "securityContext": {"allowPrivilegeEscalation": False},
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }


def _toleration(key: str) -> dict[str, str]:
    return {"key": key, "operator": "Exists", "effect": "NoSchedule"}


def _train_job(request: Request, image: str) -> dict[str, Any]:
    lines = [*request.setup, f"exec {request.command_line}"]
    command = ["sh", "-ec", "\n".join(lines)] if request.setup else list(request.command)
    gpus = request.machine.num_accelerators
    amounts = {"nvidia.com/gpu": str(gpus)} if gpus else None
    name = request.name
    give_back = f"kubectl delete trainjob/{name} trainingruntime/{name}"
    variables = request.variables(give_back) or {}
    variables.pop("PACELINE_SPOT", None)  # Kubernetes sends the signal itself
    return {
        "apiVersion": _API,
        "kind": "TrainJob",
        "metadata": {"name": request.name},
        "spec": {
            "runtimeRef": {
                "name": request.name,
                "kind": "TrainingRuntime",
                "apiGroup": _API.partition("/")[0],
            },
            "activeDeadlineSeconds": round(request.hours * 3600) if request.hours else None,
            "trainer": {
                "image": image,
                "numNodes": request.num_hosts,
                "numProcPerNode": request.procs or gpus or 1,
                "command": command,
                "env": [{"name": key, "value": value} for key, value in variables.items()],
                "resourcesPerNode": {"limits": amounts, "requests": amounts},
            },
        },
    }
