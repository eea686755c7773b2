"""What this machine is and has: cores, devices, interfaces, settings that make processes fast."""
