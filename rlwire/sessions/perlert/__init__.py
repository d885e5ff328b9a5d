"""PERLERT's sessions, over datagrams that may be lost, with a clock that is passed in."""
