"""The tools behind the weft command: doctor, report, compare, plan, tensorboard and sml_demo.

Each runs as ``weft <tool>`` or ``python -m weft.tools.<tool>``.
"""
