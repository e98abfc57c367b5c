"""From words to objects: configs are composed here, and parts built from them."""
