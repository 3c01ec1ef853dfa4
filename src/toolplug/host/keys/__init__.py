"""The keys of a host: the one that seals what it keeps, and the one with which a person decides without `auth`."""
