"""Who may say what when. Pure Python over the codecs: no I/O, no threads, no clock."""
