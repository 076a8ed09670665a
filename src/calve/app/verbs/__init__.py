"""The verbs of Calve, a group in a file: each a method of values, and how it is asked for, and answers, in JSON.

`app.calve.Calve` has all of them; `app.desk.Desk` serves them by JSON, to those whom `roles` allows it.
"""
