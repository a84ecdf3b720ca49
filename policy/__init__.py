"""Policy: rules for the resources of a stack. Previews and a Pulumi policy pack check them."""
