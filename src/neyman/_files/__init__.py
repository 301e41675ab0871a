"""Files that survive kills, refuse damage and stay within limits: nothing here knows what they hold."""
