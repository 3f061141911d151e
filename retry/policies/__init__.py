"""Topic → team → policy: `file` reads the policy file into a `registry`, `explain` says in words what it decides."""
