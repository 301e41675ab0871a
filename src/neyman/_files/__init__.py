"""Files that survive kills, refuse damage and stay within limits, whatever their content."""
