"""Hosts for the ACP core: the proxy, SDK clients, SDK agents, and links of a proxy chain."""
