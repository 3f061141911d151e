"""Letters that wait and letters that are parked, looked at alike."""
