"""What is provisioned: the platform that jobs run on. Nothing is imported here, so that pure modules stay pure."""
