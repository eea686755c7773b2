"""Job files of the engines that create machines: SkyPilot, dstack, Kubernetes, Vertex AI.

Paceline creates no machines itself. Each module writes one kind of file; what stands in it is short
because `paceline train` finds out from the engine's variables which part of the world it is
(`launch/batch/engines.py`). Slurm's script is in `launch/batch/slurm.py`.
"""
