"""PERLERT's sessions over datagrams, which may be lost. Callers pass in the time."""
