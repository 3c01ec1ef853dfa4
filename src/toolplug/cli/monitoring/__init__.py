"""The board and the rules that `toolplug dashboard` fills in."""
