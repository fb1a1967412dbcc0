"""What limits, schedules and a long history cost: claims, lists, idle hosts, and waiting."""
