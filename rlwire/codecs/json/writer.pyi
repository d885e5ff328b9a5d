# Nothing here is visible from Python; the C functions are declared in the .pxd.
