"""placeholder"""
def is_valid_message(m): return True
