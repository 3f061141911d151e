"""Which letters are meant, as operators write it: `team:payments exception:*Timeout -state:parked`. No I/O."""
