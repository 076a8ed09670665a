"""The dashboard: pages of HTML over the documents of the desk.

A page is a template over one document, and over nothing else; `.json` is that document. A button is a form on a verb.
Belongs here: HTML, its files, sessions of browsers. Must not be here: rights (`calve.app.verbs.roles`), what a document says
(`calve.app`), and any way to the store or outside.
"""
