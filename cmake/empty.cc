// A library needs a source; all others come from the layers.
