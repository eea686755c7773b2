"""Answers as text, Markdown, HTML and JSON. Nothing is judged here."""
