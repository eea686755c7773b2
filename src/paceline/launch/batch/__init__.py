"""Processes that mpirun, srun or torchrun started, and scripts for batch systems."""
