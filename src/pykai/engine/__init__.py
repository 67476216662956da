"""The brain: decide(snapshot, policy, now) -> Plan, synchronous and pure."""
