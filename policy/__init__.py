"""What a stack must and should not do: rules, as predicates over its resources and as a Pulumi policy pack."""
