"""What `spark-submit` is given: `retry` as a file. See docs/how-to/analytics.md."""

from retry.__main__ import main

if __name__ == "__main__":
    main()
