"""The stand-in of pulumi-resource-kubernetes: any kind by discovery, over the API server's own REST interface."""
