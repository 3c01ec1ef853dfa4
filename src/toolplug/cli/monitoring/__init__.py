"""What monitors a host: a Grafana board and Prometheus rules for exactly one configuration."""
