"""The public testing kit: what a third-party backend or orchestrator tests itself with."""
