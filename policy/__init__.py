"""Policy: rules for a stack, as predicates over its resources and as a Pulumi policy pack."""
