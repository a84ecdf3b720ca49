"""Job operators: their releases, components and capacity."""
