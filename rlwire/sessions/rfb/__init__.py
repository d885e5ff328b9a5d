"""Sessions of RFB: who may say what when, for a viewer (`client`) and a server (`server`)."""
