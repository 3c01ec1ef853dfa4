"""The toolplug provider `web_search`: web search by several backends, and the text of pages."""
