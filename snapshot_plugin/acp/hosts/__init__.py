"""Hosts around the ACP core: the proxy, an SDK client, an SDK agent, a link of a proxy chain."""
