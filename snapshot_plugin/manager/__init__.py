"""WHEN: takes snapshots of live sessions by itself, and brings sessions back. Start with `manager`."""
