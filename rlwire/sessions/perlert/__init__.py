"""PERLERT: who may say what when, on a clock that is passed in, over datagrams that may be lost."""
