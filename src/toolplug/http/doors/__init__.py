"""What every request passes before it is looked at: each door refuses or lets through."""
