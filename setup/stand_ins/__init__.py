"""Stand-ins for the Pulumi plugins that a machine cannot download; the real plugin wins wherever there is one."""
