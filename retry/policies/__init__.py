"""Topic → team → policy: `policy_file` reads the policy file into a `registry`, `explain` says in words what it decides."""
