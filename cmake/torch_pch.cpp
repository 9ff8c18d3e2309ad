// The source that cmake/WeftLibrary.cmake compiles to obtain the precompiled header of torch.
