"""`toolplug sessions`: what applications lend, as their host keeps it. One command a file."""
