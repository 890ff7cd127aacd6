"""What the first version of the shop wrote: a customer's whole name, and orders as text."""

CUSTOMERS = {
    "customer-1": {"customer": "Ada Lovelace", "orders": "7,9"},
    "customer-2": {"customer": "Alan Turing", "orders": "12"},
    "customer-3": {"customer": "Grace Hopper", "orders": "3,4,5"},
}
PAUSED = ("customer-4", {"customer": "Mary Shelley", "orders": "1,8"})


def expected(fields: dict[str, str]) -> dict[str, object]:
    """Return the same as the third version of the shop has it: two names, and orders as numbers."""
    first_name, last_name = fields["customer"].split(" ")
    orders = [int(number) for number in fields["orders"].split(",")]
    return {"first_name": first_name, "last_name": last_name, "orders": orders}


def first_reply(fields: dict[str, str]) -> str:
    """Return what the first version of the shop says to this customer."""
    return f"{fields['customer']} ordered {fields['orders']}."


def third_reply(fields: dict[str, str]) -> str:
    """Return what the third version has to say to this customer."""
    first_name, last_name = fields["customer"].split(" ")
    return f"{last_name}, {first_name} has {len(fields['orders'].split(','))} orders."
