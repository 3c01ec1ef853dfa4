"""The toolplug provider `openapi`: the operations of an OpenAPI document as tools."""
