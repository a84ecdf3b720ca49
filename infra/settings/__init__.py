"""How settings are read, checked and refused, whatever they are of."""
