"""Everything that people read: the only place that formats text.

Plans go to stdout, talk goes to stderr. The style of messages is described in `docs/messages.md`.
"""
