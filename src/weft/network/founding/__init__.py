"""Founding a federation by letters: an invitation, acceptances, founding letters, signatures.

``letters`` has the files that travel, each signed by its writer; ``inviter`` what the member does
that begins, ``invited`` what all others do. Keys, kit and roster of a site end in one folder.
"""
