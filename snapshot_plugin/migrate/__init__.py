"""HOW old becomes new: raw data of any released version, one step at a time."""
