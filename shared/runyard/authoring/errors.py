"""What can be wrong in an author's file, and in what a model sends to a tool."""


class AuthoringError(Exception):
    """An agent's file asks for what cannot be: raised while it is imported, naming the tool and the parameter."""


class InvalidToolInput(Exception):
    """A model's arguments do not fit the tool: `Invalid tool input: q: expected string, got number; ...`.

    The message goes back to the model as an is_error result, so it names what to change and quotes no large values.
    """
