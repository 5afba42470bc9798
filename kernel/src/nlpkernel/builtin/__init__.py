"""The kernel's own components: what a plan gets where it says nothing, and the policies that need no plugin.

They register through entry points like any other component, and the engine does not know them by name.
"""
