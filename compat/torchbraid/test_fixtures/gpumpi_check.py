"""Whether MPI can read GPU memory."""


def check_gpu_direct_mpi() -> bool:
    """Returns False: weft stages states on GPUs through host memory, so torchbraid's direct transfers are not used."""
    return False
